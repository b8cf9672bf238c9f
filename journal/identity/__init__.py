"""
Identity of callers over the network: tokens of programs, sessions of people, and the check of each call.

Who may create a token or a link decides what its holder may do: both take the role ``human_admin`` and the curators'
login of Postgres. With the application's login, a program that knows a secret learns whose it is, and no more.
"""
