"""Result records, the results file, and the statistics derived from them."""
