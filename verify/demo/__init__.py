"""The main job on a real model: three pairs of runs, one of them with a planted defect."""
