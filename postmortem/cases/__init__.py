"""Cases: decisions whose outcome was off by more than noise, reviewed by a person."""
