"""`continua doctor`: what this machine is, and what Continua will therefore do on it."""

import json
import platform
from importlib.metadata import version
from pathlib import Path

from jsonargparse import Namespace

from continua.cli.commands import Command, Parser, Words
from continua.files import Json

MEMORY = {"machine": "in all", "available": "free now", "limit": "allowed here"}


def add_doctor_arguments(parser: Parser, words: Words) -> None:
    parser.flag("json", "print the same as JSON")
    parser.flag("quick", "make no probes: tell what is known of earlier ones")
    parser.common("data_dir", "runs")


def doctor_command(options: Namespace) -> None:
    """Print what was found; exit code 1 if something is broken."""
    facts = examined(options.data_dir, options.runs, ask=not options.quick)
    print(json.dumps(facts, indent=2, ensure_ascii=False) if options.json else one_screen(facts))
    if facts["broken"]:
        raise SystemExit(1)


def examined(data_dir: Path | None, runs: Path | None, ask: bool) -> Json:
    """All facts, as JSON holds them, with what follows from them."""
    from continua.data import data_folder
    from continua.machine import cache_folder, consequences, faults, float32_fault, machine_facts, packages, remarks, writable
    from continua.native import kernels_text
    from continua.train import runs_folder

    folders = {"cache": cache_folder(), "data": data_folder(data_dir), "runs": runs_folder(runs)}
    facts: Json = {
        "continua": version("continua"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        **machine_facts(ask=ask),
        "native_kernels": kernels_text(),
        "float32": (float32_fault() or "works") if ask else None,
        "packages": packages(),
        "data": _data_sets(folders["data"]),
        "folders": {name: {"path": _short(path), "writable": writable(path)} for name, path in folders.items()},
    }
    return facts | {"will": consequences(facts), "remarks": remarks(facts), "broken": faults(facts)}


def one_screen(facts: Json) -> str:
    """One screen of text."""
    from continua.report import size_text

    build, cores, memory = facts["torch"], facts["cores"], facts["memory"]
    parts = [name for name in ("mkldnn", "mkl", "openmp") if build[name]]
    sizes = [f"{size_text(memory[name])} {word}" for name, word in MEMORY.items() if memory[name] is not None]
    folders, inductor = facts["folders"].items(), facts["inductor"]
    variables = " ".join(f"{name}={value}" for name, value in facts["threads"]["variables"].items())
    rows = {
        "continua": f"{facts['continua']}, Python {facts['python']}, {facts['system']}",
        "cpu": f"{facts['cpu']['name']}, {facts['cpu']['architecture']}",
        "features": " ".join(facts["cpu"]["features"]) or "not known",
        "cores": f"{cores['usable']} of {cores['machine']}, threads of PyTorch: {facts['threads']['torch']}"
        + (f" ({variables})" if variables else ""),
        "memory": ", ".join(sizes) or "not known",
        "gpus": ", ".join(f"{card['name']} ({size_text(card['memory'])})" for card in facts["gpus"]) or "none",
        "torch": f"{build['version']}, {build['vectors']}, {' '.join(parts)}, " + (f"CUDA {build['cuda']}" if build["cuda"] else "no CUDA"),
        "native kernels": facts["native_kernels"],
        "oneDNN limit": facts["onednn_limit"] or "none",
        "float32": facts["float32"] or "not tried",
        **{name: _number_type(state) for name, state in facts["number_types"].items()},
        "compilers": "; ".join(facts["compilers"].values()) or "none",
        "inductor": "not tried" if inductor is None else "works" if inductor["works"] else f"does not work ({inductor['reason']})",
        "packages": ", ".join(f"{name} {package['version'] or 'not installed'}" for name, package in facts["packages"].items()),
        "data sets": ", ".join(f"{name}{'' if state == 'yes' else f' ({state})'}" for name, state in facts["data"].items()) or "none",
        "folders": ", ".join(f"{name} {folder['path']}{'' if folder['writable'] else ' (READ ONLY)'}" for name, folder in folders),
    }
    if facts["stand_in"]:
        rows["stand-in"] = f"CONTINUA_PROBE={facts['stand_in']}: probes are not made"
    lines = [*_lines(rows), "", "What Continua will therefore do", *_lines(facts["will"])]
    lines += ["", "Remarks", *(f"  - {text}" for text in facts["remarks"])] if facts["remarks"] else []
    lines += ["", "Broken", *(f"  - {text}" for text in facts["broken"])] if facts["broken"] else ["", "Nothing is broken."]
    return "\n".join(lines)


def _lines(rows: dict[str, str]) -> list[str]:
    return [f"  {name:<20}{text}" for name, text in rows.items()]


def _number_type(state: Json | None) -> str:
    from continua.machine import Verdict

    return "not tried" if state is None else str(Verdict(state["state"], state["reason"], state["limit"] or ""))


def _data_sets(root: Path) -> dict[str, str]:
    """Sets that are here, wholly or in part."""
    from continua.data import CATALOGUE, data_presence

    states = {name: data_presence(known, root).state for name, known in CATALOGUE.items()}
    return {name: state for name, state in states.items() if state != "no"}


def _short(path: Path) -> str:
    """Without the name of the user, where the home folder has it."""
    path = Path.cwd() / path
    for name, known in {"~": Path.home(), ".": Path.cwd()}.items():
        if path.is_relative_to(known):
            return str(Path(name) / path.relative_to(known))
    return str(path)


COMMAND = Command(
    "What this machine is and what Continua will therefore do, on one screen, to be pasted into a report of a bug. "
    "Tries everything anew (a minute or two); exit code 1 if something is broken.",
    doctor_command,
    add_doctor_arguments,
)
