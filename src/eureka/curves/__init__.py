"""Loss curves of anyone: read them, find their plateaus and Eureka-moments, and measure how well that works."""
