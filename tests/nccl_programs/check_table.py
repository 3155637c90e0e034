#!/usr/bin/env python3
"""check_table.py NCCL_MAP TABLE EVERY_FUNCTION LIBNCCL_SO

docs/nccl-compatibility.md has an entry for each name that libnccl.so.2 shows and for no other, and each function does what
its entry says: EVERY_FUNCTION, which calls each once, is run with the library preloaded.
"""
import os
import re
import subprocess
import sys

version_script, table, program, library = sys.argv[1:]

shown = set(re.findall(r"^ +(p?nccl\w+);", open(version_script).read(), re.M))
functions = {n if n.startswith("nccl") else n[1:] for n in shown}

entries = {}
for line in open(table):
    cells = [c.strip() for c in line.strip().strip("|").split("|")]
    if re.fullmatch(r"`nccl[A-Za-z0-9]+`", cells[0]):
        name = cells[0].strip("`")
        if name in entries:
            sys.exit(f"{name} has two entries")
        entries[name] = cells[1]

problems = [f"{n} is shown by the library and has no entry" for n in sorted(functions - set(entries))]
problems += [f"{n} has an entry and isn't shown by the library" for n in sorted(set(entries) - functions)]

environment = dict(os.environ, LD_PRELOAD=library)
run = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=60)
if run.returncode != 0:
    sys.exit(f"{program} ended with {run.returncode}: {run.stderr}")
results = {}
for line in run.stdout.splitlines():
    match = re.match(r"(p?nccl\w+) (nccl\w+|\?|wrong)\b ?(.*)", line)
    if match and results.get(match[1], ("ncclSuccess", ""))[0] == "ncclSuccess":
        results[match[1]] = (match[2], match[3])

problems += [f"{program} doesn't call {n}" for n in sorted(shown - set(results))]
for name in sorted(set(results) & shown):
    entry = entries.get(name if name.startswith("nccl") else name[1:], "")
    code, why = results[name]
    refusal = re.match(r"refuses: `(nccl\w+)`, \"(.*)\"", entry)
    if refusal:
        if code != refusal[1] or refusal[2] not in why:
            problems.append(f"{name} gave {code} ({why}), and its entry says: {entry}")
    elif not entry.startswith("works"):
        problems.append(f"{name}: its entry says neither works nor refuses: {entry}")
    elif code != "ncclSuccess":
        problems.append(f"{name} gave {code} ({why}), and its entry says: {entry}")

print("\n".join(problems) or f"{len(shown)} names do what {os.path.basename(table)} says")
sys.exit(1 if problems else 0)
