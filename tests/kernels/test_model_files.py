"""Configurations and tensors as model files hold them load, whatever wrote them, and give the values they gave."""

import json
from typing import Any

import pytest
import torch

from sureshot.kernels import evaluate, kernel_config, kernel_from_config, kernel_state

X = torch.tensor([[0.5, -1.0, 0.25, 2.0], [1.5, 0.5, -0.75, 0.0], [-0.5, 0.25, 1.0, 1.0]], dtype=torch.float64)
FILES: dict[str, Any] = json.loads(
    """
{
 "preset rbf": {
  "config": {
   "class": "ScaleKernel",
   "base_kernel": {
    "class": "AdditiveKernel",
    "kernels": [{"class": "RBFKernel", "ard_num_dims": 4}, {"class": "ConstantKernel"}]
   }
  },
  "state": {
   "raw_outputscale": 2.609375,
   "base_kernel.kernels.0.raw_lengthscale": [[1.9375, 1.875, 2.046875, 1.71875]],
   "base_kernel.kernels.1.raw_constant": [-0.765625]
  },
  "matrix": [
   [3.703968349546859, 1.9496176050813634, 2.634602591168628],
   [1.9496176050813634, 3.703968349546859, 2.0705259648698986],
   [2.634602591168628, 2.0705259648698986, 3.703968349546859]
  ]
 },
 "preset linear": {
  "config": {
   "class": "ScaleKernel",
   "base_kernel": {
    "class": "AdditiveKernel",
    "kernels": [{"class": "LinearKernel", "frozen": ["raw_variance"]}, {"class": "ConstantKernel"}]
   }
  },
  "state": {
   "raw_outputscale": 1.953125,
   "base_kernel.kernels.0.raw_variance": [[-1.140625]],
   "base_kernel.kernels.1.raw_constant": [-1.015625]
  },
  "matrix": [
   [3.7177983132402876, 0.6808274397032925, 1.6569966490544694],
   [0.6808274397032925, 2.4162393674387177, -0.1507241090032654],
   [1.6569966490544694, -0.1507241090032654, 1.9823863855048618]
  ]
 },
 "preset cosine, centred": {
  "config": {
   "class": "ScaleKernel",
   "base_kernel": {
    "class": "AdditiveKernel",
    "kernels": [{"class": "CosineKernel", "center": 4}, {"class": "ConstantKernel"}]
   }
  },
  "state": {
   "raw_outputscale": 2.25,
   "base_kernel.kernels.1.raw_constant": [0.28125],
   "base_kernel.kernels.0.center": [0.25, -0.5, 0.125, 0.5]
  },
  "matrix": [
   [4.332905343668641, 1.1726314436688128, 2.2796994206848837],
   [1.1726314436688128, 4.332905343668641, 0.9610097452332772],
   [2.2796994206848837, 0.9610097452332772, 4.332905343668641]
  ]
 },
 "preset polynomial2": {
  "config": {
   "class": "ScaleKernel",
   "base_kernel": {
    "class": "ScaledPolynomialKernel",
    "n_features": 4,
    "base_kernel": {"class": "PolynomialKernel", "power": 2}
   }
  },
  "state": {"raw_outputscale": 2.390625, "base_kernel.base_kernel.raw_offset": [-0.765625]},
  "matrix": [
   [7.246716428784744, 0.3915972360095277, 1.6638716888199077],
   [0.3915972360095277, 3.2632989078194736, 0.0036040041095420773],
   [1.6638716888199077, 0.0036040041095420773, 2.2839961659944428]
  ]
 },
 "preset unit_matern32": {
  "config": {
   "class": "ScaleKernel",
   "base_kernel": {
    "class": "AdditiveKernel",
    "kernels": [
     {"class": "UnitSphereKernel", "center": 4, "base_kernel": {"class": "MaternKernel", "nu": 1.5}},
     {"class": "ConstantKernel"}
    ]
   }
  },
  "state": {
   "raw_outputscale": 2.125,
   "base_kernel.kernels.0.base_kernel.raw_lengthscale": [[0.671875]],
   "base_kernel.kernels.1.raw_constant": [0.625],
   "base_kernel.kernels.0.center": [0.25, -0.5, 0.125, 0.5]
  },
  "matrix": [
   [4.595817131775476, 2.9481211043580906, 3.2011140920252315],
   [2.9481211043580906, 4.595817131775476, 2.912248126762611],
   [3.2011140920252315, 2.912248126762611, 4.595817131775476]
  ]
 },
 "constraints, batches, columns": {
  "config": {
   "class": "AdditiveKernel",
   "kernels": [
    {
     "class": "ScaleKernel",
     "active_dims": [0, 2],
     "batch_shape": [2],
     "constraints": {"raw_outputscale": {"class": "Positive", "transform": "exp"}},
     "base_kernel": {
      "class": "RBFKernel",
      "active_dims": [0, 2],
      "batch_shape": [2],
      "constraints": {
       "raw_lengthscale": {"class": "GreaterThan", "transform": "softplus", "lower_bound": 0.10000000149011612}
      }
     }
    },
    {
     "class": "ProductKernel",
     "kernels": [
      {"class": "PeriodicKernel"},
      {
       "class": "RQKernel",
       "constraints": {
        "raw_lengthscale": {
         "class": "Interval",
         "transform": "sigmoid",
         "lower_bound": 0.009999999776482582,
         "upper_bound": 9.0
        }
       }
      }
     ]
    }
   ]
  },
  "state": {
   "kernels.0.raw_outputscale": [-0.125, -0.15625],
   "kernels.0.base_kernel.raw_lengthscale": [[[-0.46875]], [[-0.03125]]],
   "kernels.1.kernels.0.raw_lengthscale": [[1.078125]],
   "kernels.1.kernels.0.raw_period_length": [[-0.546875]],
   "kernels.1.kernels.1.raw_lengthscale": [[0.484375]],
   "kernels.1.kernels.1.raw_alpha": [-0.390625]
  },
  "matrix": [
   [
    [1.8824969025845955, 0.08922318134711027, 0.14271186071663505],
    [0.08922318134711027, 1.8824969025845955, 0.02646739625926874],
    [0.14271186071663505, 0.02646739625926874, 1.8824969025845955]
   ],
   [
    [1.8553453273074225, 0.20492751396364645, 0.2870123994445004],
    [0.20492751396364645, 1.8553453273074225, 0.028926840981430856],
    [0.2870123994445004, 0.028926840981430856, 1.8553453273074225]
   ]
  ]
 }
}
    """
)
FILES["named"] = FILES["preset rbf"] | {"config": {"name": "rbf", "n_features": 4, "ard": True}}
FILES["named, centred"] = FILES["preset cosine, centred"] | {
    "config": {"name": "cosine", "n_features": 4, "constant": True, "center": True}
}


def _tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in state.items()}


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_the_values_it_gave(name: str) -> None:
    kernel = kernel_from_config(FILES[name]["config"], _tensors(FILES[name]["state"]))
    expected = torch.tensor(FILES[name]["matrix"], dtype=torch.float64)
    torch.testing.assert_close(evaluate(kernel, X), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("named")])
def test_it_is_written_as_it_was_read(name: str) -> None:
    kernel = kernel_from_config(FILES[name]["config"], _tensors(FILES[name]["state"]))
    assert kernel_config(kernel) == FILES[name]["config"]
    state = kernel_state(kernel)
    assert {key: value.tolist() for key, value in state.items()} == FILES[name]["state"]
