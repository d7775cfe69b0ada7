"""`cbs parity`: is every workload right through every framework and compiler?"""
