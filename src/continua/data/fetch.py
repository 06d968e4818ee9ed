"""Downloading: mirrors in order, resumed where it stopped, and nothing under its final name before its checksum holds."""

import hashlib
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from continua.data.archive import unpack
from continua.data.files import Advance, progress_bar
from continua.data.sources import Remote
from continua.errors import DataError

CHUNK = 1 << 16


@dataclass(frozen=True)
class Patience:
    """How long to wait for a silent server, and how often to try again while nothing at all arrives."""

    timeout: float = 30.0
    attempts: int = 4
    pause: float = 1.0  # before the second attempt, then doubled


class _TryAgain(Exception):
    """The transfer broke off; what has arrived is kept and the rest asked for again."""


class _GiveUp(Exception):
    """This mirror cannot serve the file."""


def fetch_data(remotes: Sequence[Remote], root: Path, mirrors: Sequence[str] = (), patience: Patience | None = None) -> list[Path]:
    """Download each file below `root` and unpack archives; what is there already is verified, not downloaded again.

    `mirrors` are base addresses tried before the official ones.
    """
    made = []
    root.mkdir(parents=True, exist_ok=True)
    for remote in remotes:
        if not remote.is_archive:
            made.append(download(remote, root / remote.folder / remote.file, mirrors, patience))
            continue
        if (root / remote.folder).exists():
            raise DataError(f"{root / remote.folder} exists already; move it away to fetch {remote.file} again")
        ours = not (root / remote.file).exists()
        archive = download(remote, root / remote.file, mirrors, patience)
        made.append(unpack(archive, root, remote.folder))
        if ours:  # an archive that somebody put there stays
            archive.unlink()
    return made


def download(remote: Remote, target: Path, mirrors: Sequence[str] = (), patience: Patience | None = None) -> Path:
    """The verified file at `target`. A `.part` file beside it holds what has arrived, for this or a later attempt."""
    if target.exists():
        digest = _md5(target)
        if digest != remote.md5:
            raise DataError(f"{target} has MD5 {digest}, expected {remote.md5}; delete it and fetch again")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    failures = []
    for address in [*(mirror.rstrip("/") + "/" + remote.file for mirror in mirrors), *remote.addresses]:
        try:
            _download_from(address, remote, part, patience or Patience())
        except _GiveUp as failure:
            failures.append(f"{address}: {failure}")
        else:
            part.replace(target)
            return target
    raise DataError(f"{remote.file} could not be fetched ({'; '.join(failures)}); try again later, or put the file at {target} yourself")


def _download_from(address: str, remote: Remote, part: Path, patience: Patience) -> None:
    """Fill `part` from one address and verify it. Raises `_GiveUp` where that cannot be done."""
    fruitless, inherited = 0, part.exists()
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _transfer(address, remote, part, patience.timeout)
        except _TryAgain as trouble:
            arrived = part.stat().st_size if part.exists() else 0
            fruitless = 0 if arrived > before else fruitless + 1
            if fruitless >= patience.attempts:
                raise _GiveUp(f"{trouble}, {fruitless} times without a byte arriving") from None
            if fruitless:
                time.sleep(patience.pause * 2 ** (fruitless - 1))
            continue
        digest = _md5(part)
        if digest == remote.md5:
            return
        part.unlink()
        if not inherited:
            raise _GiveUp(f"wrong checksum: MD5 {digest}, expected {remote.md5}")
        inherited = False  # the beginning was from an earlier attempt and may be what is wrong: once more, from nothing


def _transfer(address: str, remote: Remote, part: Path, timeout: float) -> None:
    """One request: append what arrives to `part`. Raises `_TryAgain` where it ends early."""
    start = part.stat().st_size if part.exists() else 0
    if start and start == remote.size:
        return
    headers = {"User-Agent": "continua", "Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=timeout) as response:
            if start and not _continues(response, start):
                start = 0  # the server sends the whole file whatever we ask for
            total = start + int(response.headers["Content-Length"]) if response.headers["Content-Length"] else remote.size
            if remote.size is not None and total != remote.size:
                raise _GiveUp(f"offers {total:,} bytes, expected {remote.size:,}")
            with progress_bar(remote.file, total, of_bytes=True, done=start) as advance:
                arrived = start + _append(response, part, start, total, advance)
            if total is not None and arrived < total:
                raise _TryAgain(f"the transfer ended after {arrived:,} of {total:,} bytes")
            if total is not None and arrived > total:
                part.unlink()
                raise _GiveUp(f"sent {arrived:,} bytes, expected {total:,}")
    except urllib.error.HTTPError as error:
        if error.code == 416 and start:  # "range not satisfiable": our part is not a beginning of this file, or all of it
            _start_over_unless_whole(part, remote)
        elif error.code >= 500 or error.code == 429:
            raise _TryAgain(f"HTTP {error.code} {error.reason}") from None
        else:
            raise _GiveUp(f"HTTP {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise _TryAgain(f"no connection ({error.reason})") from None
    except TimeoutError:
        raise _TryAgain(f"nothing arrived for {timeout:g} s") from None
    except (ConnectionError, ssl.SSLError, http.client.HTTPException) as error:
        raise _TryAgain(f"the connection broke ({type(error).__name__})") from None
    except ValueError as error:
        raise _GiveUp(f"not a usable address or answer ({error})") from None


def _continues(response: http.client.HTTPResponse, start: int) -> bool:
    return response.status == 206 and (response.headers["Content-Range"] or "").startswith(f"bytes {start}-")


def _start_over_unless_whole(part: Path, remote: Remote) -> None:
    if _md5(part) != remote.md5:
        part.unlink()
        raise _TryAgain("the part kept from an earlier attempt does not fit")


def _append(response: http.client.HTTPResponse, part: Path, start: int, total: int | None, advance: Advance) -> int:
    arrived = 0
    with part.open("ab" if start else "wb") as copy:
        while chunk := response.read1(CHUNK):  # what is there now, so that a stall loses nothing
            copy.write(chunk)
            arrived += len(chunk)
            advance(len(chunk))
            if total is not None and start + arrived > total:
                break
    return arrived


def _md5(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
