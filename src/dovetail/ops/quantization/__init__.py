"""Quantization: QuantizeLinear, DequantizeLinear and operators on quantized tensors."""
