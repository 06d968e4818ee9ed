"""What follows from the facts about a machine: what is broken, what might be better, what Continua will do."""

from typing import Any


def faults(facts: dict[str, Any]) -> list[str]:
    """What makes commands fail, each as a sentence with what to do. A number type that is not used is none: float32 takes its place."""
    found = []
    if facts["float32"] not in (None, "works"):
        found.append(f"float32 does not work: {facts['float32']}; install PyTorch anew, and try ONEDNN_MAX_CPU_ISA=AVX2")
    for name, variable in {"cache": "XDG_CACHE_HOME", "runs": "CONTINUA_RUNS"}.items():
        folder = facts["folders"][name]
        if not folder["writable"]:
            found.append(f"the {name} folder {folder['path']} cannot be written; name another one by {variable}")
    return found


def remarks(facts: dict[str, Any]) -> list[str]:
    """What works, but less well than it might."""
    found = []
    for name, state in facts["number_types"].items():
        if state is not None and state["state"] in ("limited", "broken"):
            found.append(f"the CPU claims {name}, and the probe failed: {state['reason']}")
    if facts["inductor"] is not None and not facts["inductor"]["works"]:
        found.append(f"torch.compile does not work with inductor: {facts['inductor']['reason']}")
    if not facts["folders"]["data"]["writable"]:
        found.append(f"the data folder {facts['folders']['data']['path']} is read only: nothing can be fetched into it")
    found += [f"{name} is not installed: no {package['for']}" for name, package in facts["packages"].items() if package["version"] is None]
    return found


def consequences(facts: dict[str, Any]) -> dict[str, str]:
    """What Continua will do here where it has the choice."""
    gpus, state = facts["gpus"], facts["number_types"]["bfloat16"] or {"state": "unknown"}
    asked = {
        "works": "computes in bfloat16",
        "limited": f"limits oneDNN by ONEDNN_MAX_CPU_ISA={state.get('limit')} first; in a notebook, set that yourself",
        "broken": "is refused",
        "emulated": "works, slowly: convolutions compute in float32 and round",
        "unknown": "is decided by a probe when it is first wanted",
    }[state["state"]]
    automatic = {"works": "bfloat16", "unknown": asked}.get(state["state"], "float32")
    if gpus:
        automatic = "bfloat16" if gpus[0]["bfloat16"] else "float32"
    inductor = facts["inductor"]
    return {
        "device auto": f"cuda, {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}" if gpus else "cpu",
        "precision auto": automatic,
        "precision bfloat16": asked + (" (on the CPU)" if gpus else ""),
        "filters in bfloat16": "choose routes for matrix units" if state["state"] == "works" else "compute in float32 and round",
        "threads": f"{facts['threads']['torch']}, unless --threads says otherwise",
        "torch.compile": "as you ask" if inductor is None or inductor["works"] else 'not with inductor; backend="aot_eager" works',
    }
