"""What only labels need: their order and priors, temperatures, answers, conformal decisions, suggestions."""
