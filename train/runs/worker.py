"""One process of a launch: ``accelerate launch … --module train.runs.worker RUN-FOLDER``."""

import os
import sys
from dataclasses import asdict
from pathlib import Path

from train.model_folder import load_tokenizer
from train.runs.fit import prepare, train_rows
from train.runs.launch import read_order, scratch, write_outcome
from train.runs.offline import quiet_libraries
from train.runs.reporters import reporter_variables
from trajectory.errors import HeadraceError


def main() -> None:
    """Train this process's share; the first one writes what came of it."""
    out = Path(sys.argv[1])
    rank = int(os.environ["RANK"])
    order = read_order(out)
    variables = reporter_variables(order.spec.training.reporters, out)
    with quiet_libraries(scratch(out) / f"process-{rank}", **variables):
        prepare(order.spec.training)
        try:
            measured = train_rows(
                order.spec,
                order.base,
                load_tokenizer(order.base),
                order.rows,
                out,
                resume=order.resume,
            )
        except HeadraceError as error:
            write_outcome(out, {"error": type(error).__name__, "text": str(error)})
            raise SystemExit(1) from error
        if rank == 0:
            write_outcome(out, asdict(measured))
        _leave()


def _leave() -> None:
    """Wait for the others, so that none finds its partner gone."""
    import torch.distributed

    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
