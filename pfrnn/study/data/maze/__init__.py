"""Maps, the simulator, and the exact posterior of the maze world."""
