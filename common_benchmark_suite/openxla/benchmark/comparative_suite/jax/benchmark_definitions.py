"""Benchmark cases in JAX."""

from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.comparative_suite.jax import model_definitions as models
from openxla.benchmark.comparative_suite.jax import pipeline_definitions as pipelines
from openxla.benchmark.def_types import BenchmarkCase

_SEED = {"absolute_tolerance": 0.5}

BERT_TINY_JAX_CASES = utils.build_benchmark_cases(models.BERT_TINY_JAX)
BERT_BASE_JAX_CASES = utils.build_benchmark_cases(models.BERT_BASE_JAX, verify_parameters=_SEED)
BERT_LARGE_JAX_CASES = utils.build_benchmark_cases(models.BERT_LARGE_JAX, verify_parameters=_SEED)
RESNET_TINY_JAX_CASES = utils.build_benchmark_cases(models.RESNET_TINY_JAX)
RESNET50_JAX_CASES = utils.build_benchmark_cases(models.RESNET50_JAX, verify_parameters=_SEED)

VIT_TINY_JAX_CASES = utils.build_benchmark_cases(models.VIT_TINY_JAX)
VIT_BASE_JAX_CASES = utils.build_benchmark_cases(models.VIT_BASE_JAX, verify_parameters=_SEED)
EFFICIENTNET_TINY_JAX_CASES = utils.build_benchmark_cases(models.EFFICIENTNET_TINY_JAX)
EFFICIENTNETB0_JAX_CASES = utils.build_benchmark_cases(
    models.EFFICIENTNETB0_JAX, verify_parameters=_SEED
)
EFFICIENTNETB7_JAX_CASES = utils.build_benchmark_cases(
    models.EFFICIENTNETB7_JAX, verify_parameters=_SEED
)
VIT_CLASSIFICATION_JAX_CASES = utils.build_benchmark_cases(
    {"default": models.VIT_CLASSIFICATION_JAX}, verify_parameters=_SEED
)

GPT2LMHEAD_TINY_JAX_CASES = utils.build_benchmark_cases(models.GPT2LMHEAD_TINY_JAX)
GPT2LMHEAD_JAX_CASES = utils.build_benchmark_cases(models.GPT2LMHEAD_JAX, verify_parameters=_SEED)
GPT2_TINY_GREEDY_JAX_CASES = utils.build_benchmark_cases(models.GPT2_TINY_GREEDY_JAX)
GPT2_GREEDY_JAX_CASES = utils.build_benchmark_cases(models.GPT2_GREEDY_JAX)
LLAMA_TINY_JAX_CASES = utils.build_benchmark_cases(models.LLAMA_TINY_JAX)
LLAMA_1B_JAX_CASES = utils.build_benchmark_cases(models.LLAMA_1B_JAX)
LLAMA_TINY_GREEDY_JAX_CASES = utils.build_benchmark_cases(models.LLAMA_TINY_GREEDY_JAX)
LLAMA_1B_GREEDY_JAX_CASES = utils.build_benchmark_cases(models.LLAMA_1B_GREEDY_JAX)
GEMMA_TINY_JAX_CASES = utils.build_benchmark_cases(models.GEMMA_TINY_JAX)
GEMMA_TINY_GREEDY_JAX_CASES = utils.build_benchmark_cases(models.GEMMA_TINY_GREEDY_JAX)
GEMMA2BIT_GREEDY_JAX_CASES = utils.build_benchmark_cases(
    models.GEMMA2BIT_GREEDY_JAX, verify_parameters=_SEED
)

T5_TINY_JAX_CASES = utils.build_benchmark_cases(models.T5_TINY_JAX)
T5_SMALL_JAX_CASES = utils.build_benchmark_cases(models.T5_SMALL_JAX, verify_parameters=_SEED)
T5_LARGE_FP32_JAX_CASES = utils.build_benchmark_cases(
    models.T5_LARGE_FP32_JAX, verify_parameters=_SEED
)
T5_LARGE_16_BIT_JAX_CASES = utils.build_benchmark_cases(
    models.T5_LARGE_16_BIT_JAX, verify_parameters=_SEED
)
T5_4CG_TINY_JAX_CASES = utils.build_benchmark_cases(models.T5_4CG_TINY_JAX)
T5_4CG_SMALL_JAX_CASES = utils.build_benchmark_cases(
    models.T5_4CG_SMALL_JAX, verify_parameters=_SEED
)
T5_4CG_LARGE_JAX_CASES = utils.build_benchmark_cases(
    models.T5_4CG_LARGE_JAX, verify_parameters=_SEED
)

SD_CLIP_TINY_JAX_CASES = utils.build_benchmark_cases(models.SD_CLIP_TINY_JAX)
SD_CLIP_JAX_CASES = utils.build_benchmark_cases(models.SD_CLIP_JAX)
SD_UNET_TINY_JAX_CASES = utils.build_benchmark_cases(models.SD_UNET_TINY_JAX)
SD_UNET_JAX_CASES = utils.build_benchmark_cases(models.SD_UNET_JAX)
SD_VAE_TINY_JAX_CASES = utils.build_benchmark_cases(models.SD_VAE_TINY_JAX)
SD_VAE_JAX_CASES = utils.build_benchmark_cases(models.SD_VAE_JAX)
WHISPER_TINY_TEST_JAX_CASES = utils.build_benchmark_cases(models.WHISPER_TINY_TEST_JAX)
WHISPER_39M_JAX_CASES = utils.build_benchmark_cases(models.WHISPER_39M_JAX)
WHISPER_BASE_JAX_CASES = utils.build_benchmark_cases(models.WHISPER_BASE_JAX)

GPT2LMHEAD_PIPELINE_TINY_JAX_CASES = utils.build_benchmark_cases(
    pipelines.GPT2LMHEAD_PIPELINE_TINY_JAX
)
GPT2LMHEAD_PIPELINE_JAX_CASES = utils.build_benchmark_cases(
    pipelines.GPT2LMHEAD_PIPELINE_JAX, verify_parameters=_SEED
)
SD_PIPELINE_TINY_JAX_CASES = utils.build_benchmark_cases(pipelines.SD_PIPELINE_TINY_JAX)
SD_PIPELINE_JAX_CASES = utils.build_benchmark_cases(
    pipelines.SD_PIPELINE_JAX, verify_parameters=_SEED
)

# Another text, padded or not, or sound through tiny models; through larger ones, text and picture.
INPUT_SET_JAX_CASES = utils.build_input_set_cases(
    [
        *(
            family["fp32", 1]
            for family in (
                models.GPT2LMHEAD_TINY_JAX,
                models.LLAMA_TINY_JAX,
                models.GEMMA_TINY_JAX,
                models.T5_TINY_JAX,
                models.GPT2_TINY_GREEDY_JAX,
                models.LLAMA_TINY_GREEDY_JAX,
                models.GEMMA_TINY_GREEDY_JAX,
                models.WHISPER_TINY_TEST_JAX,
            )
        ),
        models.BERT_TINY_JAX["fp32", 4],
        models.T5_4CG_TINY_JAX["fp32", 4],
        models.BERT_BASE_JAX["fp32", 512],
        models.RESNET50_JAX["fp32", 8],
    ]
)

ALL_BENCHMARKS = utils.collect(globals(), BenchmarkCase)
