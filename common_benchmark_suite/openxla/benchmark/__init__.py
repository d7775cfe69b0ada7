"""Definitions, models, inputs and artifacts of the Common Benchmark Suite.

Measurement is in `comparative_benchmark`, on which this package does not depend.
"""

from openxla.benchmark import old_names

_MODELS = (
    *("bert", "efficientnet", "gemma", "gpt2", "gpt2_pipeline", "llama", "resnet", "sd_clip"),
    *("sd_pipeline", "sd_unet", "sd_vae", "t5", "t5_for_cond_gen", "vit", "whisper"),
)

old_names.install(
    "openxla.benchmark",
    {
        "artifacts.arrays": "artifacts.array_files",
        "artifacts.download": "artifacts.transfers",
        "artifacts.fetch": "artifacts.published_models",
        "artifacts.lock_file": "artifacts.manifests",
        "artifacts.manifest": "artifacts.manifests",
        "artifacts.parallel": "artifacts.transfers",
        "brought": "user_models",
        "brought.in_jax": "user_models.python_files.in_jax",
        "brought.in_keras": "user_models.programs.in_keras",
        "brought.in_onnx": "user_models.onnx.in_onnx",
        "brought.in_saved_model": "user_models.programs.in_saved_model",
        "brought.in_stablehlo": "user_models.programs.in_stablehlo",
        "brought.in_tensorflow": "user_models.python_files.in_tensorflow",
        "brought.in_tflite": "user_models.programs.in_tflite",
        "brought.in_torch": "user_models.python_files.in_torch",
        "brought.in_torch_export": "user_models.programs.in_torch_export",
        "brought.in_torchscript": "user_models.programs.in_torchscript",
        "brought.in_transformers": "user_models.hugging_face.in_transformers",
        "comparative_suite.networks": "comparative_suite.families",
        **{f"devices.{name}": "devices" for name in ("gcp", "host", "mobile")},
        "extras": "installation",
        **{
            f"models.{framework}.{name}.{name}_model": f"models.{framework}.{name}"
            for framework in ("jax", "pt", "tf")
            for name in _MODELS
        },
        "models.generation": "models.model_interfaces",
        "models.pt.example.example_model": "models.pt.example",
        "models.safetensors_file": "models.checkpoint_tensors",
        "models.tf.activations": "models.tf.operations",
        "models.tf.products": "models.tf.operations",
        "models.jax.jax_model_interface": "models.in_tree",
        "models.tflite.bert.architecture": "models.tflite.bert",
        "models.tflite.bert.bert_model": "models.tflite.bert",
        "models.tflite.vit.architecture": "models.tflite.vit",
        "models.tflite.vit.vit_model": "models.tflite.vit",
        "models.utils": "models.in_tree",
        "models.weights": "models.checkpoint_tensors",
        "nearest": "text",
        "python_files": "files",
        "root": "installation",
        "temporary": "files",
        **{f"testdata.{name}": "testdata" for name in ("files", "input_data", "input_sets")},
        "user_models.programs.pt2_archive": "user_models.programs.torch_archives",
    },
)
