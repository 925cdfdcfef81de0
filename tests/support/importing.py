"""Importing in tests: into a folder of the test, and by the command line."""

import contextlib
import io
import sys

from verify.cli import main
from verify.dumps.format import open_dump
from verify.dumps.importers.observation import Options
from verify.dumps.importers.registry import open_source
from verify.dumps.importers.writing import write_run


def import_to(path, out, **options):
    """Import ``path`` by its content into the run ``out``, and open that."""
    write_run(open_source(path, None, Options(**options)), out)
    return open_dump(out)


def run_cli(*arguments):
    """Exit code, stdout and stderr of a command."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["verify", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()
