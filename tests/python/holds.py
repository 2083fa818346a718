"""What a program of a test does so that the job can be disturbed on its way, however slow the machine: files in the
folder HOLD say when it is held, and when it may go on."""
import os
import pathlib
import time

FOLDER = pathlib.Path(os.environ["HOLD"])
# Seconds of a step that is slow: some hundred of them are longer than any disturbance takes.
SLOW = 0.1


def may_go():
    return (FOLDER / "go").exists()


def kept():
    """Whether there is a checkpoint of a step that was taken."""
    return any((FOLDER / "run/checkpoints").glob("step-[1-9]*.json"))


def hold():
    """Once. The file "held" tells that it does."""
    if (FOLDER / "held").exists():
        return
    (FOLDER / "held").touch()
    while not may_go():
        time.sleep(0.01)


def in_step(job, wanted, step):
    """What the names in `wanted` say:

    slow       each step takes a while, until there is a file "go"
    hold       worker-1 is held in `step`
    hold-kept  worker-1 is held in the first step after a checkpoint of one that was taken
    """
    if "slow" in wanted and not may_go():
        time.sleep(SLOW)
    if job.index == 1 and (("hold" in wanted and job.step == step) or ("hold-kept" in wanted and kept())):
        hold()
