"""Forks at every lock that the modules of the package keep: a program, run by `test_forks`.

It prints, for each lock, where it is, whether the fork waited for it, and whether it is free in the
child.  It first makes locks that a fork leaves as they are, which must be found.
"""

import functools
import gc
import os
import threading
import types
import weakref
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

PACKAGES = ("mlpengine", "mlpengine_cli")
LOCKS = (type(threading.Lock()), type(threading.RLock()))

checks: list = []
"""What runs last before a fork: handlers run in reverse order, and this is the first."""
if __name__ == "__main__":
    os.register_at_fork(before=lambda: [check() for check in checks])


def modules() -> dict[str, types.ModuleType]:
    """Import every module of the package."""
    loaded = {}
    for package in map(import_module, PACKAGES):
        for found in walk_packages(package.__path__, f"{package.__name__}."):
            loaded[found.name] = import_module(found.name)
    return loaded


def locks(loaded: dict[str, types.ModuleType]) -> Iterator[tuple[str, object]]:
    """Yield each lock that a module reaches: by a variable, an object, a class or a closure.

    Other packages look after their own.
    """
    seen: set[int] = set()
    for name, module in loaded.items():
        waiting = [
            (f"{name}.{key}", value) for key, value in vars(module).items() if key[:2] != "__"
        ]
        while waiting:
            path, value = waiting.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            if isinstance(value, LOCKS):
                yield path, value
            elif isinstance(value, types.FunctionType) and is_own(value):
                waiting += [
                    (path, part) for part in (value.__closure__, value.__defaults__) if part
                ]
            elif is_followed(value):
                path = f"{path}.{value.__name__}" if isinstance(value, type) else path
                waiting += [(path, part) for part in gc.get_referents(value)]


def is_own(value: object) -> bool:
    """Return whether a class or a function is one of the package."""
    return str(value.__module__).partition(".")[0] in PACKAGES


def is_followed(value: object) -> bool:
    """Return whether an object may hold a lock of the package."""
    if isinstance(value, type):
        return is_own(value)
    if isinstance(value, types.ModuleType | types.FunctionType):
        return False
    kind = type(value)
    holders = (functools, threading, weakref, types)
    names = {"builtins", "collections", "queue", "_functools", *(one.__name__ for one in holders)}
    return is_own(kind) or kind.__module__ in names


def in_thread(function) -> object:
    """Return what a function returns in a thread of its own, to which no lock belongs."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def is_free(lock) -> bool:
    """Return whether another thread could take a lock now."""

    def taken() -> bool:
        if not lock.acquire(blocking=False):
            return False
        lock.release()
        return True

    return in_thread(taken)


def forked(lock) -> tuple[bool, bool]:
    """Fork while another thread holds the lock, which it releases once the fork is asked for.

    Returns whether the fork holds the lock then, and whether it is free in the child.
    """
    held, asked, waited = threading.Event(), threading.Event(), []

    def hold() -> None:
        with lock:
            held.set()
            asked.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    first.append(asked.set)
    checks.append(lambda: (thread.join(), waited.append(not is_free(lock))))
    child = os.fork()
    if not child:
        os._exit(0 if is_free(lock) else 1)
    first.clear()
    checks.clear()
    thread.join()
    return waited[0], os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


first: list = []
"""What runs first before a fork."""


class Holder:
    """Something that holds a lock, as objects of modules do."""

    def __init__(self) -> None:
        self.condition = threading.Condition()


PLANTED = {
    "lock": threading.Lock,
    "object": Holder,
    "dictionary": lambda: {"a": [threading.RLock()]},
    "closure": lambda: functools.partial(lambda lock: None, threading.Lock()),
    "class": lambda: type("Planted", (), {"lock": threading.Lock(), "__module__": "mlpengine"}),
}


def main() -> None:
    """Fork at every lock."""
    loaded = modules()
    Holder.__module__ = "mlpengine.core.spec"
    for kind, make in PLANTED.items():
        setattr(loaded["mlpengine.core.spec"], f"planted_{kind}", make())
    os.register_at_fork(before=lambda: [call() for call in first])
    for path, lock in locks(loaded):
        print(path, *forked(lock))


if __name__ == "__main__":
    main()
