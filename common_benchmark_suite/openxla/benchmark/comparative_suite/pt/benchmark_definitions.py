"""Benchmark cases in PyTorch."""

from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.comparative_suite.pt import model_definitions as models
from openxla.benchmark.comparative_suite.pt import pipeline_definitions as pipelines
from openxla.benchmark.def_types import BenchmarkCase

EXAMPLE_FP32_PT_CASES = utils.build_batch_benchmark_cases(
    models.EXAMPLE_FP32_PT_BATCHES, verify_parameters={"absolute_tolerance": 0.1}
)

_SEED = {"absolute_tolerance": 0.5}

BERT_TINY_PT_CASES = utils.build_benchmark_cases(models.BERT_TINY_PT)
BERT_BASE_PT_CASES = utils.build_benchmark_cases(models.BERT_BASE_PT, verify_parameters=_SEED)
BERT_LARGE_PT_CASES = utils.build_benchmark_cases(models.BERT_LARGE_PT, verify_parameters=_SEED)
RESNET_TINY_PT_CASES = utils.build_benchmark_cases(models.RESNET_TINY_PT)
RESNET50_PT_CASES = utils.build_benchmark_cases(models.RESNET50_PT, verify_parameters=_SEED)

VIT_TINY_PT_CASES = utils.build_benchmark_cases(models.VIT_TINY_PT)
VIT_BASE_PT_CASES = utils.build_benchmark_cases(models.VIT_BASE_PT, verify_parameters=_SEED)
EFFICIENTNET_TINY_PT_CASES = utils.build_benchmark_cases(models.EFFICIENTNET_TINY_PT)
EFFICIENTNETB0_PT_CASES = utils.build_benchmark_cases(
    models.EFFICIENTNETB0_PT, verify_parameters=_SEED
)
EFFICIENTNETB7_PT_CASES = utils.build_benchmark_cases(
    models.EFFICIENTNETB7_PT, verify_parameters=_SEED
)

GPT2LMHEAD_TINY_PT_CASES = utils.build_benchmark_cases(models.GPT2LMHEAD_TINY_PT)
GPT2LMHEAD_PT_CASES = utils.build_benchmark_cases(models.GPT2LMHEAD_PT, verify_parameters=_SEED)
GPT2_TINY_GREEDY_PT_CASES = utils.build_benchmark_cases(models.GPT2_TINY_GREEDY_PT)
GPT2_GREEDY_PT_CASES = utils.build_benchmark_cases(models.GPT2_GREEDY_PT)
LLAMA_TINY_PT_CASES = utils.build_benchmark_cases(models.LLAMA_TINY_PT)
LLAMA_1B_PT_CASES = utils.build_benchmark_cases(models.LLAMA_1B_PT)
LLAMA_TINY_GREEDY_PT_CASES = utils.build_benchmark_cases(models.LLAMA_TINY_GREEDY_PT)
LLAMA_1B_GREEDY_PT_CASES = utils.build_benchmark_cases(models.LLAMA_1B_GREEDY_PT)
GEMMA_TINY_PT_CASES = utils.build_benchmark_cases(models.GEMMA_TINY_PT)
GEMMA_TINY_GREEDY_PT_CASES = utils.build_benchmark_cases(models.GEMMA_TINY_GREEDY_PT)
GEMMA2BIT_GREEDY_PT_CASES = utils.build_benchmark_cases(
    models.GEMMA2BIT_GREEDY_PT, verify_parameters=_SEED
)

T5_TINY_PT_CASES = utils.build_benchmark_cases(models.T5_TINY_PT)
T5_SMALL_PT_CASES = utils.build_benchmark_cases(models.T5_SMALL_PT, verify_parameters=_SEED)
T5_LARGE_FP32_PT_CASES = utils.build_benchmark_cases(
    models.T5_LARGE_FP32_PT, verify_parameters=_SEED
)
T5_LARGE_16_BIT_PT_CASES = utils.build_benchmark_cases(
    models.T5_LARGE_16_BIT_PT, verify_parameters=_SEED
)
T5_4CG_TINY_PT_CASES = utils.build_benchmark_cases(models.T5_4CG_TINY_PT)
T5_4CG_SMALL_PT_CASES = utils.build_benchmark_cases(models.T5_4CG_SMALL_PT, verify_parameters=_SEED)
T5_4CG_LARGE_PT_CASES = utils.build_benchmark_cases(models.T5_4CG_LARGE_PT, verify_parameters=_SEED)

SD_CLIP_TINY_PT_CASES = utils.build_benchmark_cases(models.SD_CLIP_TINY_PT)
SD_CLIP_PT_CASES = utils.build_benchmark_cases(models.SD_CLIP_PT)
SD_UNET_TINY_PT_CASES = utils.build_benchmark_cases(models.SD_UNET_TINY_PT)
SD_UNET_PT_CASES = utils.build_benchmark_cases(models.SD_UNET_PT)
SD_VAE_TINY_PT_CASES = utils.build_benchmark_cases(models.SD_VAE_TINY_PT)
SD_VAE_PT_CASES = utils.build_benchmark_cases(models.SD_VAE_PT)
WHISPER_TINY_TEST_PT_CASES = utils.build_benchmark_cases(models.WHISPER_TINY_TEST_PT)
WHISPER_39M_PT_CASES = utils.build_benchmark_cases(models.WHISPER_39M_PT)
WHISPER_BASE_PT_CASES = utils.build_benchmark_cases(models.WHISPER_BASE_PT)

GPT2LMHEAD_PIPELINE_TINY_PT_CASES = utils.build_benchmark_cases(
    pipelines.GPT2LMHEAD_PIPELINE_TINY_PT
)
GPT2LMHEAD_PIPELINE_PT_CASES = utils.build_benchmark_cases(
    pipelines.GPT2LMHEAD_PIPELINE_PT, verify_parameters=_SEED
)
SD_PIPELINE_TINY_PT_CASES = utils.build_benchmark_cases(pipelines.SD_PIPELINE_TINY_PT)
SD_PIPELINE_PT_CASES = utils.build_benchmark_cases(
    pipelines.SD_PIPELINE_PT, verify_parameters=_SEED
)

# Another text, padded or not, or sound through tiny models; through larger ones, text and picture.
INPUT_SET_PT_CASES = utils.build_input_set_cases(
    [
        *(
            family["fp32", 1]
            for family in (
                models.GPT2LMHEAD_TINY_PT,
                models.LLAMA_TINY_PT,
                models.GEMMA_TINY_PT,
                models.T5_TINY_PT,
                models.GPT2_TINY_GREEDY_PT,
                models.LLAMA_TINY_GREEDY_PT,
                models.GEMMA_TINY_GREEDY_PT,
                models.WHISPER_TINY_TEST_PT,
            )
        ),
        models.BERT_TINY_PT["fp32", 4],
        models.T5_4CG_TINY_PT["fp32", 4],
        models.BERT_BASE_PT["fp32", 512],
        models.RESNET50_PT["fp32", 8],
    ]
)

ALL_BENCHMARKS = utils.collect(globals(), BenchmarkCase)
