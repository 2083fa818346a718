"""Runs scripts that say `import horovod.torch` without editing them.

    python3 -m trainyard.compat train.py --epochs 3
    python3 -m trainyard.compat -m package.train --epochs 3

or, in a program: `trainyard.compat.install()` before the import. Horovod itself must not be loaded.
Answers to horovod, horovod.torch and its modules, and what of horovod.common scripts import.
"""
from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
import types
from typing import Any, Dict, List, NoReturn, Optional, Sequence

# The release whose names these are.
HOROVOD_VERSION = "0.28.1"


def install() -> None:
    """From now on `import horovod.torch` gives `trainyard.torch`. Again: does nothing.

    RuntimeError where Horovod itself was imported before; ImportError without torch.
    """
    present = sys.modules.get("horovod")
    if present is not None:
        if getattr(present, "__trainyard__", False):
            return
        raise RuntimeError("horovod is imported already: call trainyard.compat.install() before it")
    modules = _modules()
    sys.modules.update(modules)
    for name, module in modules.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    sys.meta_path.insert(0, _Others())


def _modules() -> Dict[str, types.ModuleType]:
    """All modules that are answered to, by name."""
    torch = importlib.import_module("trainyard.torch")
    root = _package("horovod")
    root.__dict__.update(__version__=HOROVOD_VERSION, __trainyard__=True, run=_run)
    modules = {"horovod": root, "horovod.torch": torch, "horovod.common": _package("horovod.common")}
    for name, holder in {
            "horovod.torch.compression": "trainyard.torch._compression",
            "horovod.torch.elastic": "trainyard.torch.elastic",
            "horovod.torch.functions": "trainyard.torch._functions",
            "horovod.torch.optimizer": "trainyard.torch._optimizer",
            "horovod.torch.sync_batch_norm": "trainyard.torch._sync_batch_norm",
            "horovod.common.exceptions": "trainyard.torch._errors",
            "horovod.common.process_sets": "trainyard.torch._process_sets"}.items():
        modules[name] = importlib.import_module(holder)
    modules["horovod.torch.mpi_ops"] = _with("horovod.torch.mpi_ops", vars(torch))
    modules["horovod.common.util"] = _with("horovod.common.util", _util())
    return modules


def _package(name: str) -> types.ModuleType:
    package = _with(name, {})
    package.__path__ = []
    return package


def _with(name: str, content: Dict[str, Any]) -> types.ModuleType:
    module = types.ModuleType(name, f"Answers for {name}; see trainyard.compat.")
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__dict__.update({key: value for key, value in content.items()
                            if not key.startswith("__")})
    return module


def _util() -> Dict[str, Any]:
    """What scripts take from horovod.common.util."""
    from trainyard.torch import _build_info as build

    def gpu_available(ext_base_name: str = "torch", verbose: bool = False) -> bool:
        import torch
        return bool(torch.cuda.is_available())

    def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
        return ext_base_name == "torch"

    def check_extension(ext_name: str, *_: Any) -> None:
        if ext_name != "horovod.torch":
            raise ImportError(_REFUSED.format(name=ext_name))

    def split_list(items: Sequence[Any], count: int) -> List[Sequence[Any]]:
        from trainyard.torch._buckets import split_evenly
        runs: List[Sequence[Any]] = [
            [items[at] for at in run] for run in split_evenly(len(items), count)]
        return [*runs, *[[]] * (count - len(runs))]

    def num_rank_is_power_2(num_rank: int) -> bool:
        return num_rank > 0 and num_rank & (num_rank - 1) == 0

    found = {name: value for name, value in locals().items() if callable(value)}
    answers = {name: getattr(build, name) for name in (
        "mpi_built", "gloo_built", "nccl_built", "ddl_built", "ccl_built")}
    return {**{name: _ignoring_arguments(answer) for name, answer in answers.items()}, **found}


def _ignoring_arguments(function: Any) -> Any:
    return lambda *_, **__: function()


def _run(*_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError("horovod.run is not supported: use `trainyard run -np N -- python3 "
                              "script.py`")


_REFUSED = ("{name} is not there: trainyard.compat answers for horovod.torch only, not for other "
            "frameworks and launchers")


class _Others(importlib.abc.MetaPathFinder):
    """Says why there is nothing else below horovod."""

    def find_spec(self, fullname: str, path: Optional[Sequence[Optional[str]]],
                  target: Optional[types.ModuleType] = None) -> None:
        if fullname.startswith("horovod."):
            raise ModuleNotFoundError(_REFUSED.format(name=fullname), name=fullname)


def main(arguments: Sequence[str]) -> int:
    """Runs `SCRIPT [ARGUMENT...]` or `-m MODULE [ARGUMENT...]`."""
    if not arguments or (arguments[0] == "-m" and len(arguments) == 1):
        print("usage: python3 -m trainyard.compat (SCRIPT | -m MODULE) [ARGUMENT...]",
              file=sys.stderr)
        return 2
    install()
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        sys.path.insert(0, os.getcwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments)
        sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
