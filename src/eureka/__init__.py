"""eureka: find long loss plateaus, trace them to the attention softmax, and remove them."""
