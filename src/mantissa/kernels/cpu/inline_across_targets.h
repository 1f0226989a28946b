// Inlining into functions for other instructions.
#pragma once

#include <hwy/base.h>

/// HWY_INLINE for a function of HWY_NAMESPACE that functions with a target of their own call, such as
/// avx512bf16. Clang inlines always_inline functions only where all features of theirs are named, and refuses
/// to compile others.
#if HWY_COMPILER_CLANG
#define MANTISSA_INLINE_ACROSS_TARGETS inline
#else
#define MANTISSA_INLINE_ACROSS_TARGETS HWY_INLINE
#endif
