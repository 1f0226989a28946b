#!/usr/bin/env python3
"""Tests that tools/requirements.txt names the packages that tools/*.py import: usage: requirements_test.py TOOLS."""
import ast
import pathlib
import sys
import unittest

TOOLS = pathlib.Path(sys.argv.pop(1))
# Modules of source trees and environments that scripts are given; export_run.py has those of the user.
GIVEN = {"mmaemu", "mmasim", "mx", "torchao", "trackio", "wandb"}


def imported():
    """Returns {package: script} of every import that is neither Python's own nor another script."""
    found = {}
    for path in sorted(TOOLS.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else \
                [node.module] if isinstance(node, ast.ImportFrom) else []
            for package in (name.partition(".")[0] for name in names):
                if package not in sys.stdlib_module_names | GIVEN and not (TOOLS / f"{package}.py").exists():
                    found[package] = path.name
    return found


class Requirements(unittest.TestCase):
    def test_name_every_package_that_a_script_imports(self):
        lines = [line for line in (TOOLS / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
        for line in lines:
            self.assertRegex(line, r"^[a-z0-9_]+==[0-9.]+$", "expected PACKAGE==VERSION")
        pinned = {line.partition("==")[0] for line in lines}
        for package, script in imported().items():
            self.assertIn(package, pinned, f"{script} imports {package}; add it to tools/requirements.txt")
        self.assertEqual(pinned - set(imported()), set(), "no script imports these packages of tools/requirements.txt")


if __name__ == "__main__":
    unittest.main()
