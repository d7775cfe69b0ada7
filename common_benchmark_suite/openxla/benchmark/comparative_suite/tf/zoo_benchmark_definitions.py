"""Benchmark cases of `zoo_definitions`."""

from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.comparative_suite.tf import zoo_definitions as models
from openxla.benchmark.def_types import BenchmarkCase

_SEED = {"absolute_tolerance": 0.5}

GPT2LMHEAD_TINY_TF_CASES = utils.build_benchmark_cases(models.GPT2LMHEAD_TINY_TF)
GPT2LMHEAD_TF_CASES = utils.build_benchmark_cases(models.GPT2LMHEAD_TF, verify_parameters=_SEED)
GPT2_TINY_GREEDY_TF_CASES = utils.build_benchmark_cases(models.GPT2_TINY_GREEDY_TF)
GPT2_GREEDY_TF_CASES = utils.build_benchmark_cases(models.GPT2_GREEDY_TF)
LLAMA_TINY_TF_CASES = utils.build_benchmark_cases(models.LLAMA_TINY_TF)
LLAMA_1B_TF_CASES = utils.build_benchmark_cases(models.LLAMA_1B_TF)
LLAMA_TINY_GREEDY_TF_CASES = utils.build_benchmark_cases(models.LLAMA_TINY_GREEDY_TF)
LLAMA_1B_GREEDY_TF_CASES = utils.build_benchmark_cases(models.LLAMA_1B_GREEDY_TF)
GEMMA_TINY_TF_CASES = utils.build_benchmark_cases(models.GEMMA_TINY_TF)
GEMMA_TINY_GREEDY_TF_CASES = utils.build_benchmark_cases(models.GEMMA_TINY_GREEDY_TF)
GEMMA2BIT_GREEDY_TF_CASES = utils.build_benchmark_cases(
    models.GEMMA2BIT_GREEDY_TF, verify_parameters=_SEED
)
T5_TINY_TF_CASES = utils.build_benchmark_cases(models.T5_TINY_TF)
T5_SMALL_TF_CASES = utils.build_benchmark_cases(models.T5_SMALL_TF, verify_parameters=_SEED)
T5_LARGE_FP32_TF_CASES = utils.build_benchmark_cases(
    models.T5_LARGE_FP32_TF, verify_parameters=_SEED
)
T5_LARGE_16_BIT_TF_CASES = utils.build_benchmark_cases(
    models.T5_LARGE_16_BIT_TF, verify_parameters=_SEED
)
T5_4CG_TINY_TF_CASES = utils.build_benchmark_cases(models.T5_4CG_TINY_TF)
T5_4CG_SMALL_TF_CASES = utils.build_benchmark_cases(models.T5_4CG_SMALL_TF, verify_parameters=_SEED)
T5_4CG_LARGE_TF_CASES = utils.build_benchmark_cases(models.T5_4CG_LARGE_TF, verify_parameters=_SEED)
SD_CLIP_TINY_TF_CASES = utils.build_benchmark_cases(models.SD_CLIP_TINY_TF)
SD_CLIP_TF_CASES = utils.build_benchmark_cases(models.SD_CLIP_TF)
SD_UNET_TINY_TF_CASES = utils.build_benchmark_cases(models.SD_UNET_TINY_TF)
SD_UNET_TF_CASES = utils.build_benchmark_cases(models.SD_UNET_TF)
SD_VAE_TINY_TF_CASES = utils.build_benchmark_cases(models.SD_VAE_TINY_TF)
SD_VAE_TF_CASES = utils.build_benchmark_cases(models.SD_VAE_TF)
WHISPER_TINY_TEST_TF_CASES = utils.build_benchmark_cases(models.WHISPER_TINY_TEST_TF)
WHISPER_39M_TF_CASES = utils.build_benchmark_cases(models.WHISPER_39M_TF)
WHISPER_BASE_TF_CASES = utils.build_benchmark_cases(models.WHISPER_BASE_TF)
GPT2LMHEAD_PIPELINE_TINY_TF_CASES = utils.build_benchmark_cases(models.GPT2LMHEAD_PIPELINE_TINY_TF)
GPT2LMHEAD_PIPELINE_TF_CASES = utils.build_benchmark_cases(
    models.GPT2LMHEAD_PIPELINE_TF, verify_parameters=_SEED
)
SD_PIPELINE_TINY_TF_CASES = utils.build_benchmark_cases(models.SD_PIPELINE_TINY_TF)
SD_PIPELINE_TF_CASES = utils.build_benchmark_cases(models.SD_PIPELINE_TF, verify_parameters=_SEED)

ALL_BENCHMARKS = utils.collect(globals(), BenchmarkCase)
