"""Which function translates which instruction."""
from collections.abc import Callable

from ptx_function import FunctionBody, Instruction, Untranslated

Handler = Callable[[FunctionBody, Instruction], None]
HANDLERS: dict[str, Handler] = {}


def translates(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def translate(f: FunctionBody, i: Instruction) -> None:
    if i.name not in HANDLERS:
        raise Untranslated(i.name)
    HANDLERS[i.name](f, i)


def put_parts(f: FunctionBody, destinations: list[str], part: Callable[[int], str]) -> None:
    for n, destination in enumerate(destinations):
        if destination != "_":
            f.put(destination, part(n))
