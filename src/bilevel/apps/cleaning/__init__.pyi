from bilevel.apps.cleaning.engine import find_wrong_labels as find_wrong_labels
from bilevel.apps.cleaning.hyper_cleaning import Cleaning as Cleaning
from bilevel.apps.cleaning.hyper_cleaning import clean as clean
from bilevel.apps.cleaning.hyper_cleaning import default_algorithm as default_algorithm
from bilevel.apps.cleaning.numbers import find_wrong_numbers as find_wrong_numbers
