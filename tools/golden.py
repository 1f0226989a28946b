"""Shared by the golden_*.py scripts: their arguments, and files of which one case is replaced."""
import argparse
import pathlib

GOLDEN = pathlib.Path(__file__).parent.parent / "tests/golden"


def parser(doc, cases):
    """Returns a parser with --only, which takes the name of one of the cases."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", metavar="NAME", choices=list(cases), help="write only this case; all other bytes stay as they are")
    return made


def arguments(doc, place, cases):
    """Returns the folder or file to write, by default `place` of tests/golden, and the name of --only or None."""
    made = parser(doc, cases)
    made.add_argument("place", nargs="?", type=pathlib.Path, default=GOLDEN / place)
    args = made.parse_args()
    return args.place, args.only


def save_case(tensors, path, only):
    """Writes the tensors. With `only`, writes those named "ONLY.…" and keeps the file's others."""
    from safetensors.torch import load_file, save_file  # needs torch, which not every script does

    if only:
        mine = f"{only}."
        kept = {name: t for name, t in load_file(path).items() if not name.startswith(mine)}
        tensors = kept | {name: t for name, t in tensors.items() if name.startswith(mine)}
    save_file(tensors, path)
