"""The paper's figures and tables as functions that return what they drew, what they measured, and a
verdict."""
