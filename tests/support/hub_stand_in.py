"""A stand-in of the Hugging Face hub on loopback: as much of its HTTP interface as the real client needs to push and to load a model."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_stand_in"


class Hub(ThreadingHTTPServer):
    """Repositories by name, each a mapping of files; large files by their SHA-256, as git LFS has them."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.large: dict[str, bytes] = {}
        self.asked: list[str] = []  # what was fetched: method and path
        self.claimed: dict[str, int] = {}  # sizes that HEAD claims instead of the real ones, by file name

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def commit_of(self, repo: str) -> str:
        return hashlib.sha1(repr(sorted((name, data) for name, data in self.repos[repo].items())).encode()).hexdigest()


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def say(self, status: int, data: Any = b"", **headers: str) -> None:
        contents = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.send_response(status)
        headers.setdefault("Content_Length", str(len(contents)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(contents)

    def file(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        place = re.fullmatch(r"/([\w.-]+/[\w.-]+)/resolve/([\w.-]+)/(.+)", self.path)
        if place is None or place[1] not in self.server.repos:
            return self.say(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        repo = self.server.repos[place[1]]
        if place[3] not in repo:
            return self.say(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
        data = repo[place[3]]
        headers = {"X_Repo_Commit": self.server.commit_of(place[1]), "ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        if self.command == "HEAD":
            headers["Content_Length"] = str(self.server.claimed.get(place[3], len(data)))
        return self.say(200, data, **headers)

    do_HEAD = do_GET = file

    def do_PUT(self) -> None:
        data = self.body()
        self.server.large[hashlib.sha256(data).hexdigest()] = data
        self.say(200)

    def do_POST(self) -> None:
        data = self.body()
        if self.headers.get("Authorization") not in (f"Bearer {TOKEN}", None) or (
            self.headers.get("Authorization") is None and "/api/" in self.path and "yaml" not in self.path
        ):
            return self.say(401, {"error": "Invalid credentials"})
        if self.path == "/api/repos/create":
            asked = json.loads(data)
            name = f"{asked.get('organization') or 'ann'}/{asked['name']}"
            status = 409 if name in self.server.repos else 200
            self.server.repos.setdefault(name, {})
            return self.say(status, {"url": f"{self.server.address}/{name}", "name": name, "id": name})
        if "/preupload/" in self.path:
            files = json.loads(data)["files"]
            modes = [
                {"path": file["path"], "uploadMode": "lfs" if file["path"].endswith("safetensors") else "regular", "shouldIgnore": False}
                for file in files
            ]
            return self.say(200, {"files": modes})
        if self.path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(data)["objects"]
            link = f"{self.server.address}/lfs/"
            upload = [{**item, "actions": {"upload": {"href": link + item["oid"]}}} for item in objects]
            return self.say(200, {"transfer": "basic", "objects": upload})
        if "/commit/" in self.path:
            repo = re.fullmatch(r"/api/models/([\w.-]+/[\w.-]+)/commit/[\w.-]+", self.path)
            assert repo is not None
            for line in data.splitlines():
                item = json.loads(line)
                if item["key"] == "file":
                    self.server.repos[repo[1]][item["value"]["path"]] = base64.b64decode(item["value"]["content"])
                elif item["key"] == "lfsFile":
                    self.server.repos[repo[1]][item["value"]["path"]] = self.server.large[item["value"]["oid"]]
            commit = self.server.commit_of(repo[1])
            return self.say(
                200, {"commitUrl": f"{self.server.address}/{repo[1]}/commit/{commit}", "commitOid": commit, "pullRequestUrl": None}
            )
        return self.say(200, {"errors": [], "warnings": []})  # /api/validate-yaml


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
