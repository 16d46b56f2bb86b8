"""The `dedup` command, and `python -m dedup_nb`."""

import signal
import sys
import threading

STOPPED = "dedup: interrupted; what is committed stays, the rest is done by the next run"


def main() -> None:
    "Run the command. A stop counts from here on, not only when all of it is imported."
    before = signal.getsignal(signal.SIGTERM)
    is_ours = threading.current_thread() is threading.main_thread() and before is signal.SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from .cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        sys.exit(130)
    finally:  # on Databricks the process goes on
        if is_ours:
            signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    main()
