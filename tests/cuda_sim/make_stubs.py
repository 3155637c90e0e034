#!/usr/bin/env python3
"""make_stubs.py OUT.c LIBRARY... OBJECT...

Every name of the CUDA libraries (.so) that no object (.o) defines becomes a function that says that it isn't simulated and
returns cudaErrorNotSupported. Names of the per-thread default stream (_ptsz, _ptds) whose plain name is defined lead there."""
import pathlib
import re
import subprocess
import sys

NOT_SUPPORTED = 801


def defined_names(file: str, dynamic: bool) -> set[str]:
    command = ["nm", "--defined-only", *(["-D"] if dynamic else []), file]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[2].split("@")[0] for line in lines if len(line.split()) == 3}


def stub(name: str, defined: set[str]) -> str:
    plain = re.sub(r"_pts[zd]$", "", name)
    if plain != name and plain in defined:
        return f'extern int {plain}(void);\n__attribute__((naked)) int {name}(void) {{ __asm__("jmp {plain}@PLT"); }}\n'
    text = f"cuda_sim: {name} is not simulated\\n"
    return f'int {name}(void) {{\n  fputs("{text}", stderr);\n  return {NOT_SUPPORTED};\n}}\n'


def main(out: str, files: list[str]) -> None:
    libraries = [file for file in files if not file.endswith(".o")]
    wanted = {name for file in libraries for name in defined_names(file, True) if re.match(r"(__)?cuda|cu[A-Z]", name)}
    defined = {name for file in files if file not in libraries for name in defined_names(file, False)}
    stubs = "".join(stub(name, defined) for name in sorted(wanted - defined))
    pathlib.Path(out).write_text("#include <stdio.h>\n" + stubs)


main(sys.argv[1], sys.argv[2:])
