"""Laws of neurons: what is known of a network's values without relaxing them."""
