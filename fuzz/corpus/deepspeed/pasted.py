ds_config = {
    # from a notebook
    'bf16': {'enabled': True},  // kept
    'data_types': {'grad_accum_dtype': None},
    "optimizer": {"type": "Adam", "params": {"betas": (0.9, .95,), "lr": 1_0e-4,},},
    /* stage
       0 */ 'zero_optimization': False,
    gradient_accumulation_steps: 2,
}
