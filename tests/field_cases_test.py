#!/usr/bin/env python3
"""The tests that docs/field-cases.md names exist."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
named = set(re.findall(r"`(\w+\.\w+)`", (root / "docs/field-cases.md").read_text())) - {"field_cases_test.py"}
there = set()
for file in (root / "tests").glob("*_test.cpp"):
    there |= {".".join(t) for t in re.findall(r"\bTEST(?:_[FP])?\((\w+),\s*(\w+)\)", file.read_text())}
for test in sorted(named - there):
    print(f"docs/field-cases.md names {test}, which there isn't")
if len(named) < 40:
    sys.exit(f"only {len(named)} tests found in docs/field-cases.md: the pattern no longer fits")
sys.exit(1 if named - there else 0)
