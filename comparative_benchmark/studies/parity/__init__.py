"""`cbs parity`: verifies every workload with every framework and compiler."""
