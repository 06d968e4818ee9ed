"""scikit-learn: a network as a classifier, for pipelines, searches and cross-validation: `ContinuaClassifier().fit(X, y).score(X, y)`."""

from continua.compat.sklearn.classifier import ContinuaClassifier

__all__ = ["ContinuaClassifier"]
