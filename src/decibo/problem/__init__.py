"""Problems: two objectives, private data, local derivatives, the exact reference, ready-made examples."""
