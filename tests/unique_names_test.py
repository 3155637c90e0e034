#!/usr/bin/env python3
"""Two classes of one name in one namespace are one class to the linker, which keeps either's functions: a destructor of one
then runs on the other. Headers are compared with each other, and with classes in sources that aren't in unnamed namespaces."""
import collections
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
definition = re.compile(r"^(?:struct|class|enum class) (?:MUSTER_API |alignas\([^)]*\) )?([A-Za-z0-9_]+)(?: final)?(?: : [^;]*)?\s*\{")
where = collections.defaultdict(set)
for folder in ("include", "src", "transports", "topology"):
    for file in sorted((root / folder).rglob("*")):
        if file.suffix not in (".h", ".cpp"):
            continue
        scopes = []  # of namespaces; others are told by their indentation
        for line in file.read_text().splitlines():
            if opened := re.match(r"^(?:inline )?namespace ?([\w:]*) ?\{", line):
                if not line.rstrip().endswith("}"):
                    scopes.append(opened[1] or f"unnamed in {file}")
            elif re.match(r"^\}\s*// (?:unnamed |anonymous )?namespace", line) and scopes:
                scopes.pop()
            elif found := definition.match(line):
                where["::".join([*scopes, found[1]])].add(str(file.relative_to(root)))
twice = {name: files for name, files in where.items() if len(files) > 1}
for name, files in sorted(twice.items()):
    print(f"{name} is defined in {', '.join(sorted(files))}")
if len(where) < 200:
    sys.exit(f"only {len(where)} classes found: the pattern no longer fits the code")
sys.exit(1 if twice else 0)
