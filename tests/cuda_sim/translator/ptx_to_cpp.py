#!/usr/bin/env python3
"""ptx_to_cpp.py IN.ptx OUT.cpp KERNEL

Translates one kernel of a PTX module ("-": none), with all its functions and variables, to C++ that runs on the simulated
devices. An instruction that can't be translated ends the kernel by its name when it is executed."""
import pathlib
import re
import sys
from collections.abc import Iterator

import ptx_arithmetic  # noqa: F401  (they register their handlers)
import ptx_instructions  # noqa: F401
from ptx_function import translate_function
from ptx_handlers import translate
from ptx_module import Module
from ptx_source import identifier, keep_entry, statements, without_comments


def body_tokens(tokens: Iterator[str]) -> list[str]:
    """Up to the brace that closes a function."""
    body, depth = [], 1
    for token in tokens:
        depth += {"{": 1, "}": -1}.get(token, 0)
        if depth == 0:
            break
        body.append(token)
    return body


def read_module(text: str) -> Module:
    module = Module()
    module.files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', text, re.M))
    module.functions = set(re.findall(r"\.func\s*(?:\([^)]*\)\s*)?([\w$]+)", text))
    header = None  # of a function whose body may follow
    tokens = statements(text)
    for token in tokens:
        if token == "{":
            body = body_tokens(tokens)
            if header:
                translate_function(module, header, body, translate)
            header = None
        elif re.search(r"\.(entry|func)\b", token):
            header = token
        else:
            header = None
            module.add_variable(token)
    return module


def write_module(module: Module) -> str:
    kernels = [
        f'    {{"{k.name}", F_{identifier(k.name)}, {len(k.sizes)}, (const u32[]){{{", ".join(map(str, k.offsets or [0]))}}}, '
        f'(const u32[]){{{", ".join(map(str, k.sizes or [0]))}}}, {k.parameter_bytes}, {module.static_shared}, {k.max_threads}}},'
        for k in module.kernels
    ]
    variables = [f'    {{"{v.name}", {v.offset}, {v.bytes}}},' for v in module.globals.values()]
    return "\n".join([
        f"#define DYNAMIC_SHARED {module.static_shared}ull",
        *module.prototypes,
        *module.bodies,
        "static const TranslatedKernel kernels[] = {", *kernels, "    {nullptr, nullptr, 0, nullptr, nullptr, 0, 0, 0}};",
        "static const TranslatedVariable variables[] = {", *variables, "    {nullptr, 0, 0}};",
        "static void init_globals(char* g) {", "  (void)g;", *module.initialisation(), "}",
        'extern "C" CSIM_API const TranslatedModule* csim_module() {',
        f"  static const TranslatedModule module = {{kernels, variables, {module.globals_size}, init_globals}};",
        "  return &module;", "}", "",
    ])  # fmt: skip


def main(source: str, out: str, kernel: str) -> None:
    text = pathlib.Path(source).read_text(encoding="latin-1")
    module = read_module(without_comments(keep_entry(text, kernel)))
    pathlib.Path(out).write_text(write_module(module), encoding="latin-1")


if __name__ == "__main__":
    main(*sys.argv[1:])
