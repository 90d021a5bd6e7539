"""What is replaced in torch, and nothing else: the rest of torch is as it was.

register ── table              makes `sim` a device type of torch, and walks the list of what is replaced
             ├── pinning, current          factories and ``x.to``
             ├── accelerator, standins     "the" accelerator; torch.Generator, torch.Stream, torch.Event
             ├── parallel, backward        nn.parallel's functions in C++; autograd's engine
             ├── storages, parameters      torch's storages; parameters that move
             └── lazy, compiling, profiling, safetensors    modules without shapes; torch's tools; files
for_a_while ── as_cuda         what `simgpu.as_cuda` replaces, and puts back
autocast                       which operations run in low precision
"""
