#!/usr/bin/env python3
"""Runs a script of TensorFlow whose workers look every second whether the chief has prepared the variables.

TensorFlow's own 30 s (SessionManager's recovery_wait_secs) have no setting in MonitoredTrainingSession.

tensorflow_soon.py SCRIPT ARGUMENTS...
"""
import runpy
import sys

from tensorflow.python.training import session_manager

made = session_manager.SessionManager.__init__


def make(self, *arguments, **more):
    made(self, *arguments, **{"recovery_wait_secs": 1, **more})


session_manager.SessionManager.__init__ = make
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
