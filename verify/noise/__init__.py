"""How far one configuration repeats itself (docs/noise.md). Import from the submodules."""
