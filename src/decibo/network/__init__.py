"""Networks: graphs, weights, and how agents mix with their neighbours. The public names are in
`decibo.networks`."""
