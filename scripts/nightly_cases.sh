# Sourced by the nightly's scripts: the cases that they run, as a regular expression.
#
# Tiny cases of every data type find failures; real sizes find slow programs.
NIGHTLY_CASES="$(
  IFS='|'
  names=(
    'models/BERT_TINY_(FP32|FP16|BF16)_.+/.+DEFAULT'
    'models/RESNET_TINY_(FP32|FP16|BF16)_.+/.+DEFAULT'
    'models/BERT_BASE_FP32_.+_SEQLEN128/.+DEFAULT'
    'models/BERT_LARGE_FP32_.+_BATCH1/.+DEFAULT'
    'models/RESNET50_FP32_.+_BATCH1/.+DEFAULT'
  )
  echo "${names[*]}"
)"
