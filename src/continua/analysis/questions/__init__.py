"""One file for each analysis: the result, the function, its options, how it is asked and presented, and its registration."""
