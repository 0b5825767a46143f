import os,glob
docs={'attention':'Attention operators.','control_flow':'If and Loop, and their gradients.','detection':'Object detection: non-maximum suppression, proposals, prior boxes, regions of interest.','elementwise':'Elementwise operators: unary, binary, comparison, logical, activation functions, Cast.','linalg':'Linear algebra: MatMul, Gemm, Einsum, Det, Inverse.','ml':'Operators of the domain ai.onnx.ml.','nn':'Neural network layers: convolution, pooling, normalization, Resize.','quantization':'Quantization: QuantizeLinear, DequantizeLinear and operators on quantized tensors.','recurrent':'Recurrent layers: RNN, GRU, LSTM.','reduction':'Reductions, ArgMax and ArgMin, CumSum, Softmax.','sequence':'Sequences of tensors and optional values.','signal':'Signal processing: DFT, STFT, window functions.','tensor':'Shape, layout and indexing of tensors: Concat, Split, Reshape, Transpose, Gather, Scatter.','text':'Strings and text.','training':'Losses and optimizers.'}
R='src/dovetail/ops'
for d in sorted(os.listdir(R)):
    p=f'{R}/{d}'
    if os.path.isdir(p) and d!='__pycache__':
        mods=sorted(f[:-3] for f in os.listdir(p) if f.endswith('.py') and f!='__init__.py')
        s=f'"""{docs[d]}"""\n\nfrom dovetail.ops.{d} import (\n'+''.join(f'    {m},\n' for m in mods)+')\n\n__all__ = [\n'+''.join(f'    "{m}",\n' for m in mods)+']\n'
        open(f'{p}/__init__.py','w').write(s)
fam=sorted(docs)+['constant','random','runtime_attributes']
fam=sorted(fam)
open(f'{R}/__init__.py','w').write('"""The operators, one package for each family. Importing this package registers them all."""\n\nfrom dovetail.ops import (\n'+''.join(f'    {m},\n' for m in fam)+')\n\n__all__ = [\n'+''.join(f'    "{m}",\n' for m in fam)+']\n')
