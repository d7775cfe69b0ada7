"""milabench's `benchmate` as scripts of real folders import it, on real voir and giving."""
