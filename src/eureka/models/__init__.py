"""Small models, each read in one sitting; `registry.MODELS` names them."""
