"""What scripts of real folders import of milabench's `benchmate`, on real voir and giving."""
