"""Compile the native kernels when the package is installed or its wheel is built; without a compiler the package is pure Python.

A wheel also gets its software bill of materials.
"""

import importlib.util
import json
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeKernels(BuildHookInterface):
    """Adds the library to the wheel, and the platform to its name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        if version != "editable":
            build_data["sbom_files"].append(str(_written_bill(Path(self.root))))
        build = _script(Path(self.root) / "src/continua/native/build.py")
        try:
            made = build.TARGET if build.is_fresh() else build.build_library()
        except build.NoCompiler as error:
            self.app.display_warning(f"continua: {error}; {build.INSTEAD}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if version != "editable":
            build_data["force_include"][str(made)] = f"continua/native/{made.name}"


def _written_bill(root: Path) -> Path:
    """The software bill of materials, as a file that goes into the wheel's own folder of them (PEP 770)."""
    target = root / "build" / "continua.cdx.json"
    target.parent.mkdir(exist_ok=True)
    bill = _script(root / "scripts/bill_of_materials.py").bill_of_materials(root)
    target.write_text(json.dumps(bill, indent=1) + "\n", "utf-8")
    return target


def _script(path: Path) -> Any:
    """A module from its file: the package itself cannot be imported yet."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
