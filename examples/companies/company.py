"""One company's part of a model that several learn together: decibo launch -n 3 -- python
company.py"""

from pathlib import Path

from sklearn.pipeline import make_pipeline

import decibo
from decibo.sklearn import SiloEncoder, SiloLogisticRegression, load, save

company = decibo.init_distributed()  # finds the others; 0, 1 or 2
home = Path(f"company{company}")  # a disk of its own, which nobody else can read
customers = decibo.data.read_table(home / "customers.csv", label="churned")
model = make_pipeline(
    SiloEncoder(),  # missing values and categories, from sums over all companies
    SiloLogisticRegression(random_state=0, checkpoint=home / "checkpoints"),
)
# with the others; after a failure, start all again and it goes on
model.fit(customers.X, customers.y)
save(model, home / "model.json")

model = load(home / "model.json")
right = model.score(customers.X, customers.y)
print(
    f"company {company}: {len(customers.y)} customers, {right:.3f} right;"
    f" {model.predict(customers.X)[:3]}"
)
