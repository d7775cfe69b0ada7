"""Result records, the file that holds them, and what is computed from them."""
