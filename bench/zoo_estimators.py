"""Trained estimators of scikit-learn, LightGBM and XGBoost as ONNX, by the converters that people use.

    python bench/zoo_estimators.py FOLDER

It needs scikit-learn, skl2onnx, onnxmltools, lightgbm and xgboost. Writes FOLDER/<name>.onnx with inputs for two batches beside
it; what a converter refuses is written down in FOLDER/refused.json.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType as FloatOfTools
from skl2onnx import convert_sklearn, to_onnx
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor, IsolationForest, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, Normalizer, OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR
from xgboost import XGBClassifier, XGBRegressor

X, LABELS = load_iris(return_X_y=True)
X = X.astype(np.float32)
PLAIN = {"zipmap": False}
WORDS = ["a cat sat here", "dogs run far", "the cat ran", "here dogs sat"]
COLOURS = np.array([["red"], ["green"], ["blue"], ["red"]])


def _sklearn(model: Any, **options: Any) -> Any:
    return to_onnx(model.fit(X, LABELS), X[:1], **options)


def _lightgbm(model: Any) -> Any:
    return convert_lightgbm(model.fit(X, LABELS), initial_types=[("X", FloatOfTools([None, 4]))], zipmap=False)


def _xgboost(model: Any) -> Any:
    return convert_xgboost(model.fit(X, LABELS), initial_types=[("X", FloatOfTools([None, 4]))])


def _text(model: Any) -> Any:
    return convert_sklearn(model.fit(WORDS), initial_types=[("X", StringTensorType([None, 1]))])


def _mixed() -> Any:
    """Return a table of numbers with gaps and of colours, as a column transformer takes it."""
    numbers = np.array([[1.0, 2.0], [np.nan, 1.0], [0.5, 3.0], [2.0, 0.0]], np.float32)
    table = np.concatenate([numbers.astype(object), COLOURS.astype(object)], 1)
    columns = ColumnTransformer(
        [("numbers", make_pipeline(SimpleImputer(), StandardScaler()), [0, 1]), ("colours", OneHotEncoder(), [2])]
    )
    model = make_pipeline(columns, LogisticRegression()).fit(table, [0, 1, 0, 1])
    types = [("a", FloatTensorType([None, 1])), ("b", FloatTensorType([None, 1])), ("c", StringTensorType([None, 1]))]
    return convert_sklearn(model, initial_types=types, options=PLAIN)


def _integers() -> Any:
    table = X.astype(np.int64)
    return convert_sklearn(
        make_pipeline(OneHotEncoder(handle_unknown="ignore")).fit(table), initial_types=[("X", Int64TensorType([None, 4]))]
    )


ESTIMATORS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: _sklearn(make_pipeline(StandardScaler(), LogisticRegression()), options=PLAIN),
    "logistic_zipmap": lambda: _sklearn(LogisticRegression()),
    "forest": lambda: _sklearn(RandomForestClassifier(10, random_state=0), options=PLAIN),
    "forest_zipmap": lambda: _sklearn(RandomForestClassifier(10, random_state=0)),
    "boosting": lambda: _sklearn(GradientBoostingRegressor(n_estimators=10, random_state=0)),
    "isolation": lambda: _sklearn(IsolationForest(n_estimators=10, random_state=0), target_opset={"": 17, "ai.onnx.ml": 3}),
    "svc": lambda: _sklearn(SVC(), options=PLAIN),
    "svr": lambda: _sklearn(SVR()),
    "mlp": lambda: _sklearn(MLPClassifier((8,), max_iter=50, random_state=0), options=PLAIN),
    "bayes": lambda: _sklearn(GaussianNB(), options=PLAIN),
    "neighbours": lambda: _sklearn(KNeighborsClassifier(3), options=PLAIN),
    "gaussian_process": lambda: _sklearn(GaussianProcessRegressor(RBF(), alpha=0.1)),
    "kmeans": lambda: _sklearn(KMeans(3, random_state=0)),
    "pca": lambda: _sklearn(make_pipeline(Normalizer(), PolynomialFeatures(2), PCA(3))),
    "bins": lambda: _sklearn(KBinsDiscretizer(4, encode="onehot-dense")),
    "tfidf": lambda: _text(TfidfVectorizer()),
    "counts": lambda: _text(CountVectorizer(ngram_range=(1, 2))),
    "mixed": _mixed,
    "integers": _integers,
    "lightgbm": lambda: _lightgbm(LGBMClassifier(n_estimators=5, verbose=-1)),
    "lightgbm_regressor": lambda: _lightgbm(LGBMRegressor(n_estimators=5, verbose=-1)),
    "xgboost": lambda: _xgboost(XGBClassifier(n_estimators=5)),
    "xgboost_regressor": lambda: _xgboost(XGBRegressor(n_estimators=5)),
}


def inputs(name: str, model: Any, which: int) -> dict[str, np.ndarray[Any, Any]]:
    """Rows like those that it was trained on, five of them or three."""
    generator, count = np.random.default_rng(which), (5, 3)[which]
    if name in ("tfidf", "counts"):
        return {"X": generator.choice(np.array([*WORDS, "a cat runs"]), (count, 1))}
    if name == "mixed":
        numbers = generator.uniform(-1, 3, (count, 2)).astype(np.float32)
        numbers[0, 0] = np.nan
        return {"a": numbers[:, :1], "b": numbers[:, 1:], "c": generator.choice(COLOURS.ravel(), (count, 1))}
    rows = generator.uniform(X.min(0), X.max(0), (count, 4))
    return {model.graph.input[0].name: rows.astype(np.int64 if name == "integers" else np.float32)}


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    refused = {}
    for name, make in ESTIMATORS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = make()
        except Exception as error:
            refused[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            continue
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        for which, suffix in enumerate(("in", "in2")):
            np.savez(folder / f"{name}.{suffix}.npz", **inputs(name, model, which))
    (folder / "refused.json").write_text(json.dumps(refused, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
